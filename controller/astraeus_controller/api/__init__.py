"""What answers over HTTP: who asks what, and the shapes of the answers."""
