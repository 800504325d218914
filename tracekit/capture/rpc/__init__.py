"""Records remote calls of `torch.distributed.rpc`: what this worker calls, and what it serves."""
