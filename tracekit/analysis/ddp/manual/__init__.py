"""What does a loop that averages its gradients by hand lose, and what would DDP save it?"""
