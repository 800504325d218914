"""What the capture writes, and how much of the disk it may take."""
