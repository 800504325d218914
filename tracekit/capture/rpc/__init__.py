"""What the capture needs of `torch.distributed.rpc`: the mark on a call, and the calls that this worker serves."""
