"""The course of training: lengths of steps, phases, averages and the end."""
