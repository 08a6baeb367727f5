# Leave xla_mpi_ops.cc out of a build of Horovod 0.28.1, without a change in Horovod's source.
#
# scripts/setup gives this file to CMake as CMAKE_PROJECT_horovod_INCLUDE: CMake reads it when Horovod's own
# project() begins (Gloo has a project() of its own). The target that holds the file does not exist then. So the
# call waits for the end of that directory. A header is known to a target and is not compiled.
cmake_language(DEFER CALL set_source_files_properties
    "${CMAKE_CURRENT_SOURCE_DIR}/horovod/tensorflow/xla_mpi_ops.cc"
    DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}/horovod/tensorflow"
    PROPERTIES HEADER_FILE_ONLY ON)
