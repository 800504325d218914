"""What the capture learns about the job: rank, run, process groups, meshes, clock."""
