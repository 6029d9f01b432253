"""Convex heads: weighted softmax, logistic and least-squares layers, solved exactly or by minibatches."""
