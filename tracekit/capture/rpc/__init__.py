"""The capture's side of `torch.distributed.rpc`: calls of this worker and calls that it serves."""
