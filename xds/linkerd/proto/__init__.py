"""The Linkerd Destination API of two generations, its policy API and identity: generated modules."""
