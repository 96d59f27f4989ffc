"""What a pod is, and what it asks for, free of any client library."""
