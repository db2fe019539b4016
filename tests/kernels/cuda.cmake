# The CUDA source compiled for the host and run there: tests/kernels/test_cuda_NAME.cc is the ctest
# entry "kernels_cuda_NAME". C++, for that is what the source is.
enable_language(CXX)
add_library(ttt_cuda_machine STATIC ${PROJECT_SOURCE_DIR}/kernels/cuda/host/machine.cc)
target_include_directories(ttt_cuda_machine PUBLIC ${PROJECT_SOURCE_DIR})
target_compile_features(ttt_cuda_machine PUBLIC cxx_std_17)
target_compile_options(ttt_cuda_machine PUBLIC -Wall -Wextra -Werror -Wshadow -Wno-unknown-pragmas
                       -Wno-missing-field-initializers)
if(NOT TTT_SANITIZE)
  target_compile_options(ttt_cuda_machine PUBLIC -O2) # also for debugging: it runs whole GPUs
else()
  target_compile_options(ttt_cuda_machine PUBLIC -O1 -fsanitize=${TTT_SANITIZE} -fno-omit-frame-pointer
                                                 -fno-sanitize-recover=all)
  target_link_options(ttt_cuda_machine PUBLIC -fsanitize=${TTT_SANITIZE})
endif()

# A driver whose launches run on the host, for the handlers.
if(TTT_NVCC)
  get_filename_component(cuda_include ${TTT_NVCC} REALPATH)
  get_filename_component(cuda_include ${cuda_include}/../../include REALPATH)
  add_library(fake_cuda MODULE kernels/fake_cuda.cc)
  target_include_directories(fake_cuda SYSTEM PRIVATE ${cuda_include})
  target_link_libraries(fake_cuda PRIVATE ttt_cuda_machine)
  list(APPEND test_environment "TTT_CUDA_DRIVER=$<TARGET_FILE:fake_cuda>")
endif()

file(GLOB cuda_test_sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} kernels/test_cuda_*.cc)
foreach(source ${cuda_test_sources})
  string(REGEX REPLACE "/test_([^/]*)[.]cc$" "_\\1" name ${source})
  if(name MATCHES "handlers" AND NOT TTT_NVCC)
    continue()
  endif()
  add_executable(test_${name} ${source})
  target_link_libraries(test_${name} PRIVATE ttt_cuda_machine PkgConfig::CMOCKA)
  if(name MATCHES "handlers")
    target_include_directories(test_${name} SYSTEM PRIVATE ${TTT_TENSORFLOW_DIR}/include)
    target_link_libraries(test_${name} PRIVATE ttt_kernels_cuda ${CMAKE_DL_LIBS})
    add_dependencies(test_${name} fake_cuda)
  endif()
  add_test(NAME ${name} COMMAND test_${name})
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "${test_environment}" TIMEOUT 900)
endforeach()

# What CUDA's compiler says of the kernels, against the document; skipped without it.
if(NOT TTT_SANITIZE AND TTT_NVCC)
  add_test(NAME kernels_cuda_table
           COMMAND ${ttt_cache}/judges/bin/python ${PROJECT_SOURCE_DIR}/tools/dev/kernel_table.py
                   ${PROJECT_BINARY_DIR} --check)
  set_tests_properties(kernels_cuda_table PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 900)
endif()
