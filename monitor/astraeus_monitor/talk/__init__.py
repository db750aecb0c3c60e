"""The report that goes to the controller and the commands that come back."""
