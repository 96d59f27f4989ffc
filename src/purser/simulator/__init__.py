"""The simulator: nodes and pods in, what each policy makes of them out. Time is virtual.

Here: lists of nodes and pods (`openb`, `yamlfile`, `cluster`, `demo`), the order in which they come (`orders`), the two
engines (`arrivals`: pods only arrive; `departures`: they leave as well, and those that found no place wait), what is
measured (`metrics`), what no policy could exceed (`bounds`), many runs at once (`parallel`) and what is told of them
(`report`).

Not here: any rule of placement. Engines know nothing but the fleet as arrays, the table of shapes and the policies,
which are those of the live scheduler.
"""
