"""Text as features: encoders from a folder, a package or the Hub, bags of words, vocabularies."""
