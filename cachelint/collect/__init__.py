"""What is written to and read from the receiver, call by call."""
