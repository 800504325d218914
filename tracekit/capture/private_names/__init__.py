"""Which private names of torch does the capture use, and what happens without each?"""
