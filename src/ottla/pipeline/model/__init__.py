"""Values of the pipeline for all of its packages: plans, decoded batches, results, failures. Imports no other
package."""
