"""What runs in a user's job besides recording: does recording work, what would it see, what can the links do?"""
