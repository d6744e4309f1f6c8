"""The model `curve`: the layer at every capacity.

stack_distances.py   LRU at every capacity in one pass
places.py            counts of marked places in time, for stack distances
every_capacity.py    any policy at many capacities, and the capacity that an improvement needs
"""
