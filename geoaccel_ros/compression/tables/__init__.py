"""Tables of probabilities that the stages' events begin with, made by tools/train_*.py."""
