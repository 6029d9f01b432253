"""What the layers of any network pass on to each other for some samples."""
