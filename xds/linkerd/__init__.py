"""The API of Linkerd: answers to its proxies from services, discovery chains and pushed resources."""
