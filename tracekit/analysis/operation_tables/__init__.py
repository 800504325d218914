"""What do the operations of a job show, from a table that any tracer can write?"""
