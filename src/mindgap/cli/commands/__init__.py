"""The commands of the command line: one file parses the arguments of one command and calls one job."""
