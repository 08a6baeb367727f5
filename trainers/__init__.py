"""How a workload is trained on a backend; knows no backend by name."""
