"""landscape: the loss around a trained model, as a surface, a table and a picture."""
