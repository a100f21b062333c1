-- The databases of the pipeline and of the reference data: apart from the fleet's own, which the image makes.
CREATE DATABASE pipeline;
CREATE DATABASE refdata;
