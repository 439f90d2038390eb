"""What people ask about incidents and what they are shown: the same for the command line and the API."""
