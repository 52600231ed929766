"""What a node answers to those who ask it directly: logs, commands, usage. The paths are the kubelet's.

Nothing here listens: whoever composes the cluster carries requests in, from the same process or from a socket. Who may
ask is that one's business too.
"""
