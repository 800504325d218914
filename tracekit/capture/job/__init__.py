"""What the capture knows of the job: process, groups, meshes, clock, the key-value store."""
