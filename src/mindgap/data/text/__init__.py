"""Text as numbers: features from encoders or bags of words, and vocabularies of tokens."""
