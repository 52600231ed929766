"""The volumes of Pods on a real node.

Guarantees:

- `VolumeManager` keeps no state that a restart would lose: the directories of Pods, in the kubelet's layout, and the
  mount table show what exists.
- No path is deleted while something is mounted at or below it, and no removal crosses a mount point.
- No path inside of a volume, which containers can change, is resolved outside of that volume.
"""
