"""The verbs of the API and the command line, one file or folder each."""
