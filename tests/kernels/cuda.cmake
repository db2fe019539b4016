#The CUDA source compiled for the host and run there : tests / kernels / \
    test_cuda_NAME.cc is the ctest
#entry "kernels_cuda_NAME".C++, for that is what the source is.
enable_language(CXX)
add_library(ttt_cuda_machine STATIC ${PROJECT_SOURCE_DIR}/kernels/cuda/host/machine.cc)
target_include_directories(ttt_cuda_machine PUBLIC ${PROJECT_SOURCE_DIR})
target_compile_features(ttt_cuda_machine PUBLIC cxx_std_17)
target_compile_options(ttt_cuda_machine PUBLIC -Wall -Wextra -Werror -Wshadow -Wno-unknown-pragmas
                       -Wno-missing-field-initializers -O2) # also for debugging: it runs whole GPUs
if(TTT_SANITIZE)
  target_compile_options(ttt_cuda_machine PUBLIC -fsanitize=${TTT_SANITIZE} -fno-omit-frame-pointer
                                                 -fno-sanitize-recover=all)
  target_link_options(ttt_cuda_machine PUBLIC -fsanitize=${TTT_SANITIZE})
endif()

file(GLOB cuda_test_sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} kernels/test_cuda_*.cc)
foreach(source ${cuda_test_sources})
  string(REGEX REPLACE "/test_([^/]*)[.]cc$" "_\\1" name ${source})
  add_executable(test_${name} ${source})
  target_link_libraries(test_${name} PRIVATE ttt_cuda_machine PkgConfig::CMOCKA)
  add_test(NAME ${name} COMMAND test_${name})
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "${test_environment}" TIMEOUT 900)
  if(TTT_SANITIZE MATCHES "thread") # one thread, many stacks: nothing for that sanitizer to see
    set_tests_properties(${name} PROPERTIES DISABLED TRUE)
  endif()
endforeach()
