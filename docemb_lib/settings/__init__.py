"""The settings of docemb: notebooks and their parameters, sections of a profile, and profiles.

Each section is a frozen pydantic model. Its fields check single values, its validators check
combinations, and its defaults are those of the thesis.
"""
