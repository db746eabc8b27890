"""The acceptance: robots in closed loop, their real nodes as processes over DDS.

``make acceptance`` runs all of it and writes docs/acceptance.md. A file for each robot has its
runs; tests of CI run short versions of the same.
"""
