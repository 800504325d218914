"""What a worker sums up of one rank's steps."""
