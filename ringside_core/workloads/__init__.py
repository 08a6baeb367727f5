"""What is trained: model, loss, data, quality target. Knows no backend."""
