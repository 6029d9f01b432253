"""The commands: one file per command, which parses its arguments and calls one job."""
