"""The scheduler: webhook and extender, the live cache of the fleet, and binding.

Here: one process that answers the API server (``/mutate``, ``/validate``) and kube-scheduler (``/filter``,
``/prioritize``, ``/bind``, ``/preempt``), keeps its certificates and its registration, and is composed in ``run``. Not
here: what fits where and which device is best (``purser.core``), and kube-scheduler itself, which runs beside it.

A question comes in at ``server`` and goes to ``webhook``, or through ``extender_wire`` to ``extender``; that asks
``placement``, ``binding`` and ``preemption``, and all of these the ``cache``. A room is entered by its package alone.
"""
