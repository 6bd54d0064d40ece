"""The processes of this machine: looked at, ended, collected, and limited."""
