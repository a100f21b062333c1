"""What an operator asks first: is every part of this instance there, and what is to be done if not."""
