"""Which events of a rank are communication: kernels on a device, spans of Gloo on a host, sends and receives."""
