"""The model `curve`: the layer at every capacity.

stack_distances.py   LRU at every capacity in one pass
curve.py             any policy at many capacities, and the capacity that an improvement needs
sampling.py          the LRU curve, estimated from samples of the pages, with an interval
"""
