"""The command line: `python -m zccl info` and `python -m zccl bench NAME`."""
