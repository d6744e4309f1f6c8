"""The model `curve`: the layer at every capacity.

stack_distances.py   LRU at every capacity in one pass
every_capacity.py    any policy at many capacities, and the capacity that an improvement needs
"""
