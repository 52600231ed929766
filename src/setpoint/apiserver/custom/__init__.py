"""Custom resources: kinds that users add by CustomResourceDefinitions.

An established custom resource is a Resource with a Strategy and a Type like any other, and uses the same handlers,
registry, cache and store. A changed definition takes effect with the next request; watches that started before end soon
after. A deleted definition is removed after its objects.
"""
