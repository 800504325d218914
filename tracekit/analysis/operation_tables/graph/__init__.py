"""What waits for what among the operations of a table?"""
