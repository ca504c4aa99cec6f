"""A cluster coordinated by ZooKeeper: conversion between metadata records and znodes. No module here opens a
connection.
"""
