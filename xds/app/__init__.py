"""The program: it joins all rooms to a server and to a command line."""
