"""Double descent: test error that falls, rises and falls again, over width, samples and epochs."""
